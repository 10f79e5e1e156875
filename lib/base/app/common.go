package app

import "github.com/urfave/cli/v2"

// ConfigFlag is the flag that names the configuration, the same in all tools.
func ConfigFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "config", Aliases: []string{"c"},
		Usage: "read the configuration `FILE` (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)",
	}
}

// VerboseFlag is the flag that makes a tool report each step on standard error.
func VerboseFlag() cli.Flag {
	return &cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "report each step on standard error"}
}

// JSONFlag is the flag for JSON output.
func JSONFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON instead of a table"}
}

// TaskFlags are the flags that select a spool and filter its tasks, the same in all tools, and more;
// states are the words that --state accepts.
func TaskFlags(states []string, more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		ConfigFlag(),
		&cli.StringFlag{Name: "spool", Aliases: []string{"s"}, Usage: "use the spool `DIR`, without a configuration file"},
		SomeOf(&cli.StringFlag{Name: "state", Usage: "only tasks in state `STATE[,STATE...]`"}, states...),
		&cli.StringFlag{Name: "group", Aliases: []string{"g"}, Usage: "only tasks of the group `GROUP`, or of groups like 'lr*'"},
		&cli.StringFlag{Name: "name", Aliases: []string{"n"}, Usage: "only tasks with the name `TASK`, or with names like 'lr*'"},
		&cli.StringFlag{Name: "since", Usage: "only tasks submitted in the last `DURATION`, or since a date"},
		&cli.StringFlag{Name: "until", Usage: "only tasks submitted more than `DURATION` ago, or before a date"},
	}, more...)
}
