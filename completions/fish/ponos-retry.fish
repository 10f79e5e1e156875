# fish completion of ponos-retry, made by completions/generate

complete -c ponos-retry -f
complete -c ponos-retry -l config -s c -r -F -d 'read the configuration FILE (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)'
complete -c ponos-retry -l spool -s s -x -a '(__fish_complete_directories)' -d 'use the spool DIR, without a configuration file'
complete -c ponos-retry -l state -x -a '(__fish_complete_list , "printf %s\\\\n pending running stopping completed failed error stopped unfinished ended unsuccessful")' -d 'only tasks in one of the states STATE[,STATE...]'
complete -c ponos-retry -l group -s g -x -a '(__fish_complete_list , "ponos-task words groups 2>/dev/null")' -d 'only tasks of the group GROUP, which may be a pattern'
complete -c ponos-retry -l name -s n -x -a '(__fish_complete_list , "ponos-task words tasks 2>/dev/null")' -d 'only tasks with the name TASK, which may be a pattern'
complete -c ponos-retry -l since -x -d 'only tasks submitted in the last DURATION, or since a date'
complete -c ponos-retry -l until -x -d 'only tasks submitted more than DURATION ago, or before a date'
complete -c ponos-retry -l env-file -s e -r -F -d 'set the variables in FILE; they are not kept after a task ends'
complete -c ponos-retry -l yes -s y -d 'do not ask before submitting more than one task'
complete -c ponos-retry -l version -s V -d 'print the version and exit'
complete -c ponos-retry -l help -s h -d 'show help'
complete -c ponos-retry -l help-all -d 'show help with all options'
