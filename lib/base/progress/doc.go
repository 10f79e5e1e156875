// Package progress shows work that takes long on a terminal: one line on standard error that is
// redrawn up to ten times a second, and is erased when the work is done or something else is printed.
// In a pipe, on a terminal that cannot move its cursor, and in the background it does nothing.
//
// Several tools of a pipeline share a terminal. One of them at a time shows a line: the one that has
// locked the terminal's device. Tools print through Writer, which first erases the line, also that of
// another tool; the line is then drawn again. Libraries for progress bars assume that no other
// process uses the terminal, so they are not used here.
package progress
