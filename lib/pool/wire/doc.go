// Package wire is what scheduler and worker tell each other: one JSON object a line,
// both ways, over the standard streams of whatever connects them. What tasks have
// printed follows the line that announces its length as it is, with a newline behind
// it.
//
// Lines pass through srun, which forwards whole lines only. The worker speaks
// first; what comes before its greeting (a login shell's talk) is skipped.
package wire
