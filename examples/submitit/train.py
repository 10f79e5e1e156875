"""Run a function on the nodes that lfind finds for a request.

    python train.py 'cuda(mem=14G) & duration=10min'
"""

import json
import subprocess
import sys

import submitit


def place(request):
    """Options of sbatch for a resource request, as submitit takes them."""
    found = subprocess.run(["lfind", "--json", request], check=True, stdout=subprocess.PIPE, text=True)
    options = json.loads(found.stdout)["options"]
    return {name.replace("-", "_"): value for name, value in options.items()}


def train(rate):
    return f"trained with {rate}"


if __name__ == "__main__":
    executor = submitit.AutoExecutor(folder="logs", cluster="slurm")
    executor.update_parameters(slurm_additional_parameters=place(sys.argv[1]))
    print(executor.submit(train, 0.1).result())
