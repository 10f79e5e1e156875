// Package token counts, across all processes of a user on one machine, how many of
// a resource are taken: the tokens of launchers.yaml.
//
// Each token is a file of which a holder locks as many bytes as it takes. The
// kernel takes the locks back when the process that holds the file open ends, in
// whatever way, so a killed holder gives its tokens back and nothing is ever to be
// cleaned up. The locks belong to the open file and survive an exec, so they can be
// taken by lfind and held by the command that it becomes.
//
// Who waits does so in turn: the first in the queue takes its tokens before anyone
// behind it, so that one who wants many is not passed by for ever by those who want
// one.
//
// The files lie in a directory of the machine, not of a network file system, whose
// locks may be those of another machine, or have no effect.
package token
