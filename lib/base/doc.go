// Package base has what all components share and what knows nothing of clusters, tasks or markets:
// programs, files, locks, times, words and messages. It has no code of its own.
//
// # Face
//
// Each package is for all. What is a limit for all others has its place here: only command runs
// programs, only clock reads the clock of the day, only web makes HTTP clients, and only app has the standard
// streams, which tools get as arguments.
//
// # Packages
//
//	app        command lines, exit codes, messages, tables, JSON and the version of the tools
//	clock      what time it is; tests can move it
//	command    runs programs: captures, times out, kills the process group
//	fault      kinds of error, their exit codes, and hints
//	hostlist   node[01-10,12] and names
//	locale     which characters a terminal can show
//	lock       flock(2), with locks that a child can inherit
//	nss        names and numbers of users and groups, also of those that no file of this machine has
//	place      the user's directory for state, which directory was at a path, and whether others may write there
//	progress   a line on a terminal for what takes long
//	remove     removes directory trees that others have written
//	replace    replaces files in one step, without waiting for the disk
//	shell      words quoted for a shell, and command lines that need none
//	spelling   the nearest name, for "did you mean"
//	unit       durations and sizes, one grammar for all tools
//	watch      looks that all share who wait for something to change
//	web        HTTP clients that keep secrets with their host
//
// # Files
//
// In $XDG_STATE_HOME/ponos or ~/.local/state/ponos:
//
//	places/HASH    the identity of the directory that was at a path (place)
//
// # Promises, and the tests that hold them
//
//	A failure has one of a few exit codes, the same in all tools
//	    lib/base/fault/fault_test.go:TestCode
//	A message says what failed and why, and then what to do
//	    lib/base/app/app_test.go:TestErrorsBecomeStatusAndMessage
//	Stdout is data, stderr is messages
//	    lib/base/app/app_test.go:TestUsageErrorsGoToStderr
//	    lib/base/command/command_test.go:TestRunKeepsStreamsApart
//	A program that times out leaves no processes of its group
//	    lib/base/command/command_test.go:TestRunKillsTheGroup
//	A reader of a replaced file sees the old or the new contents
//	    lib/base/replace/replace_test.go:TestFile
//	What a tool prints, it reads
//	    lib/base/unit/unit_test.go:TestPrintThenParse
//	Control characters of others do not reach a terminal
//	    lib/base/app/printable_test.go:TestPrintable
//	    lib/base/app/printable_test.go:TestSanitize
//	What others could have written is not used
//	    lib/base/place/ours_test.go:TestOpenToOthers
//	    lib/base/place/ours_test.go:TestOfAnotherUser
//	Those that wait at the same time look together, and never at what was there before they came
//	    lib/base/watch/watch_test.go:TestWatch
//	A redirect gets no secret and no body to another place
//	    lib/base/web/web_test.go:TestRedirects
package base
