package app

import "github.com/urfave/cli/v2"

// ConfigFlag is the flag that names the configuration, the same in all tools.
func ConfigFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", Aliases: []string{"c"}, Usage: "read the configuration `FILE` (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)"}
}

// VerboseFlag is the flag that says more on standard error.
func VerboseFlag() cli.Flag {
	return &cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "tell on standard error what is done"}
}

// JSONFlag is the flag for output for programs.
func JSONFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON instead of a table"}
}

// SpoolFlag is the flag that names a spool, the same in all tools that look at one.
func SpoolFlag() cli.Flag {
	return &cli.StringFlag{Name: "spool", Aliases: []string{"s"}, Usage: "look at the spool `DIR`; read no configuration"}
}

// FilterFlags are the flags that say which tasks of a spool are meant; states are the words
// that --state takes.
func FilterFlags(states []string) []cli.Flag {
	return []cli.Flag{
		SomeOf(&cli.StringFlag{Name: "state", Usage: "only tasks in one of the states `STATE[,STATE...]`"}, states...),
		&cli.StringFlag{Name: "group", Aliases: []string{"g"}, Usage: "only tasks of the group `GROUP`, which may be a pattern"},
		&cli.StringFlag{Name: "name", Aliases: []string{"n"}, Usage: "only tasks called `TASK`, which may be a pattern"},
		&cli.StringFlag{Name: "since", Usage: "only tasks submitted within the last `DURATION`, or since a time"},
		&cli.StringFlag{Name: "until", Usage: "only tasks submitted more than `DURATION` ago, or before a time"},
	}
}
