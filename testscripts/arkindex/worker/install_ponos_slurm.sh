# Installs this worker into the virtual environment that Ponos has made, with the
# packages that the tests have at @SITE@.
set -eu
site=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo '@SITE@' > "$site/tests.pth"
python3 -m pip install --quiet --no-index --no-deps --no-build-isolation ${PIP_FLAGS:-} .
