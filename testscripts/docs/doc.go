// Package docs holds the documentation to what the tools do: man pages and
// completions know every flag and none that is not there, committed pages are what
// the generators make, and the examples of README.md and the man pages are run.
//
// An example is a block of a Markdown source that is marked as "console": lines
// that begin with "$ " are commands, "> " continues one, and what follows is what
// it prints on both streams. All blocks of a file are run by one bash, in a home
// directory of its own. "..." stands for any text of a line, and as a line of its own
// for any lines; ids, times and versions are compared by their form only.
package docs
