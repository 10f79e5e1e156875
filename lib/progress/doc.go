// Package progress shows on a terminal what takes long: one line on standard error
// that is drawn again up to ten times a second, and is gone when the work is done or
// something else is printed. In a pipe, without a terminal that can move its cursor,
// and in the background it does nothing.
//
// Several tools of a pipeline share a terminal. One of them at a time shows a line:
// the one that has locked the terminal's device. What a tool prints goes through
// Writer, which erases the line first, whosever it is; the line comes back by itself.
// Libraries for bars take the terminal to be theirs alone, and so are not used here.
package progress
