# A package of Spack, from the tarballs of a release: what is in them is static.
import platform

from spack.package import *

try:
    from spack_repo.builtin.build_systems.generic import Package
except ImportError:  # before Spack 1.0, spack.package has it
    pass

SHA256 = {
    "amd64": "@SHA256_AMD64@",
    "arm64": "@SHA256_ARM64@",
}
ARCH = "arm64" if platform.machine() == "aarch64" else "amd64"


class Ponos(Package):
    """Small tools around Slurm: submit and track tasks, run many commands within one job, find the
    options of sbatch for a request, and see who waits and why."""

    homepage = "https://github.com/ponos-tools/ponos"
    url = "https://github.com/ponos-tools/ponos/releases/download/v@VERSION@/ponos-@VERSION@-linux-%s.tar.gz" % ARCH

    license("Apache-2.0")

    version("@VERSION@", sha256=SHA256[ARCH])

    # What tasks with code are prepared with. Slurm is that of the site.
    depends_on("bash", type="run")
    depends_on("git", type="run")
    depends_on("python@3.6:", type="run")

    conflicts("platform=darwin")
    conflicts("platform=windows")

    def install(self, spec, prefix):
        install_tree(".", prefix)
