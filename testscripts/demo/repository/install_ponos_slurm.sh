# Installs this code into the virtual environment of a task. There is nothing that
# pip would have to do; with dependencies, it would be: pip install $PIP_FLAGS .
set -e
cp -R tables "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
