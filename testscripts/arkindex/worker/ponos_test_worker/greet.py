"""Greets elements: a worker as its authors write them, for online and offline use."""

import json
import os
from pathlib import Path

from arkindex_worker.models import Element
from arkindex_worker.worker import ElementsWorker, MetaType


class Greeter(ElementsWorker):
    def add_arguments(self):
        super().add_arguments()
        self.parser.add_argument("--closing", required=True)

    def configure(self):
        super().configure()
        self.greeted = []
        listed = self.parent_file("elements.json")
        self.known = {e["id"]: e for e in json.loads(listed.read_text())} if listed else {}

    def parent_file(self, name):
        """A parent's artifact: by the API, or by what the agent says of the parents."""
        if not self.is_read_only:
            found = self.find_parents_file_paths(Path(name))
        else:
            parents = json.loads(os.environ.get("TASK_PARENTS", "{}"))
            found = [self.task_data_dir / parent / name for parent in parents]
        return next((path for path in found if path.is_file()), None)

    def get_elements(self):
        if self.is_read_only:
            return [Element(**e) for e in self.known.values()]
        return super().get_elements()

    def process_element(self, element):
        name = self.known.get(element.id, {}).get("name", "nobody knows")
        text = f"{self.config['greeting']}, {name}, {self.args.closing}!"
        self.create_transcription(element, text, confidence=0.5)
        self.create_metadata(element, MetaType.Text, "rate", repr(self.config["rate"]))
        self.greeted.append(text)
        print(text, flush=True)

    def run(self):
        super().run()
        model = sorted(p.name for p in self.find_extras_directory().iterdir())
        report = {
            "greeted": self.greeted,
            "config": self.config,
            "secrets": self.secrets,
            "corpus": self.corpus_id,
            "model_version": self.model_version_id,
            "extras": model,
            "read_only": self.is_read_only,
        }
        path = self.work_dir / "report.json"
        path.write_text(json.dumps(report, sort_keys=True))
        if not self.is_read_only:
            published = self.work_dir / "greetings.txt"
            published.write_text("\n".join(self.greeted) + "\n")
            self.upload_artifact(published)


def main():
    Greeter("Greets elements").run()
