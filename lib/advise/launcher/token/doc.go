// Package token implements the tokens of launchers.yaml: counted resources that all processes
// of a user on one machine share.
//
// Each token is a file. A holder locks as many bytes of it as it takes tokens. When the last
// process that has the file open ends, the kernel releases its locks, so a killed holder
// returns its tokens and nothing needs to be cleaned up. The locks are open file description
// locks, which survive exec: lfind takes them, and the command that replaces it holds them.
//
// Of the processes that wait, only the first takes tokens. A process that needs many is
// therefore not overtaken again and again by those that need one. The order of the others is
// not defined.
//
// The files are in a local directory. On a network file system, locks may apply to other
// machines as well, or have no effect.
package token
