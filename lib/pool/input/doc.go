// Package input reads tasks from what the user wrote: lines, lines ended by NUL, JSON lines, or
// arguments put into a template.
//
// A reader never reads ahead of the requested task, so a pipe can feed it for ever.
package input
