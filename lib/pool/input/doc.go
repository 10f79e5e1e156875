// Package input makes tasks of what the user wrote: lines, lines ended by NUL,
// JSON lines, or arguments put into a template.
//
// A reader never looks further ahead than the task it is asked for, so it can be
// fed by a pipe for ever.
package input
