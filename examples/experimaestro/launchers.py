"""Where experimaestro runs tasks, as lfind finds it.

Copy this file to ~/.config/experimaestro/. A task's requirements, such as "duration=4h & cuda(mem=24G) * 2", become a
request of lfind(1), which reads launchers.yaml or asks Slurm. It was tried with experimaestro 2.7.0.

experimaestro itself read launchers.yaml from release 0.29.11 to 1.5.7. Apart from additions to the language, lfind
differs from it:

- "* 0" is an error, not one GPU, and so is memory of a GPU without a known unit. "gi" is binary.
- Memory and cores of CPUs are checked separately, and nodes without these values match. The default of cpu.memory is
  mem_per_cpu times cores.
- A GPU without memory in the file has that of its model. GPUs of different sizes on one machine are matched in any
  order, with model and kind. cuda() is a whole GPU.
- min_memory and min_mem_ratio do not exclude requests without memory; min_mem_ratio has an effect at every level.
- Partitions, nodes and features are combined only within a class (see lfind(1)), and only if every node that the job
  could get matches; a QoS or an account only with a partition that has it.
- "use_features: false" names the first hosts, as many as the requested nodes. "use_memory_contraint: false" without
  mem_per_cpu does not match.
- connector and configuration may be omitted; options is read as configuration. disable, use_hosts and count have an
  effect.
- A file without launchers is ignored.
"""

import json
import subprocess

from experimaestro.launchers.direct import DirectLauncher
from experimaestro.launchers.slurm.base import SlurmLauncher, SlurmOptions
from experimaestro.connectors.local import LocalConnector
from experimaestro.launcherfinder.specs import RequirementUnion


def request(requirements):
    """Requirements, or alternatives of them, in the language of lfind."""
    if isinstance(requirements, RequirementUnion):
        return " | ".join(map(request, requirements.requirements))
    terms = []
    for gpu in requirements.accelerators:
        kind = gpu.accelerator_type.value if gpu.accelerator_type else "gpu"
        terms.append(f"{kind}(mem={gpu.memory}B)" if gpu.memory else f"{kind}()")
    cpu = requirements.cpu
    if cpu.memory or cpu.cores:
        terms.append(f"cpu(mem={cpu.memory}B, cores={max(1, cpu.cores)})" if cpu.memory else f"cpu(cores={cpu.cores})")
    if requirements.duration:
        terms.append(f"duration={requirements.duration}s")
    return " & ".join(terms) or "cpu()"


def find_launcher(requirements, tags=frozenset()):
    """The launcher for requirements, or None; experimaestro calls this."""
    argv = ["lfind", "--json", "--tags", ",".join(sorted(tags)), "--", request(requirements)]
    found = subprocess.run(argv, stdout=subprocess.PIPE, text=True)
    if found.returncode == 1:
        return None
    found.check_returncode()
    launcher = json.loads(found.stdout)
    if launcher.get("hostname"):
        raise RuntimeError(f"launcher {launcher['launcher']} is on {launcher['hostname']}")
    if launcher["kind"] == "local":
        return DirectLauncher(LocalConnector.instance())
    options = SlurmOptions()
    for name, value in launcher["options"].items():
        if not hasattr(options, name.replace("-", "_")):
            raise RuntimeError(f"experimaestro has no option {name} of sbatch")
        setattr(options, name.replace("-", "_"), value)
    return SlurmLauncher(options=options, binpath=launcher.get("path", "/usr/bin"))
