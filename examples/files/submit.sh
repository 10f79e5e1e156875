# submit.sh DIR: submits a task for each *.txt of DIR. Called again, it submits tasks for new files only.
set -eu
directory=$(cd "$1" && pwd)
cd "$(dirname "$0")"
{
	echo file
	find "$directory" -name '*.txt' | sort
} | ponos-submit --key files --directory . --each - -- sh count.sh {file}
