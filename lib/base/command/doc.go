// Package command runs other programs. It is the only package that imports
// os/exec, which a linter rule holds.
//
// A program runs in a process group of its own, which is killed as a whole when
// the context ends or the time is up. Standard output and standard error are
// kept apart. That a program ran and failed (ExitError), that it could not be run
// (NotFoundError) and that it took too long (TimeoutError) are different errors.
package command
