# fish completion of ponos-cancel, made by completions/generate

complete -c ponos-cancel -f -a '(ponos-task words tasks (commandline -ct | string replace -r \'^(--[a-z-]+=)?["\\\']?\' \'\') 2>/dev/null)'
complete -c ponos-cancel -l config -s c -r -F -d 'read the configuration FILE (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)'
complete -c ponos-cancel -l spool -s s -x -a '(__fish_complete_directories)' -d 'use the spool DIR, without a configuration file'
complete -c ponos-cancel -l state -x -a '(__fish_complete_list , "printf %s\\\\n pending running stopping completed failed error stopped unfinished ended unsuccessful")' -d 'only tasks in state STATE[,STATE...]'
complete -c ponos-cancel -l group -s g -x -a '(ponos-task words groups (commandline -ct | string replace -r \'^(--[a-z-]+=)?["\\\']?\' \'\') 2>/dev/null)' -d 'only tasks of the group GROUP, or of groups like \'lr*\''
complete -c ponos-cancel -l name -s n -x -a '(ponos-task words tasks (commandline -ct | string replace -r \'^(--[a-z-]+=)?["\\\']?\' \'\') 2>/dev/null)' -d 'only tasks with the name TASK, or with names like \'lr*\''
complete -c ponos-cancel -l since -x -d 'only tasks submitted in the last DURATION, or since a date'
complete -c ponos-cancel -l until -x -d 'only tasks submitted more than DURATION ago, or before a date'
complete -c ponos-cancel -l yes -s y -d 'do not ask before cancelling more than one task'
complete -c ponos-cancel -l version -s V -d 'print the version and exit'
complete -c ponos-cancel -l help -s h -d 'show help'
complete -c ponos-cancel -l help-all -d 'show help with all options'
