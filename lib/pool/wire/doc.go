// Package wire is what scheduler and worker tell each other: one JSON object a line,
// both ways, over the standard streams of whatever connects them.
//
// Lines pass through srun, which forwards whole lines only. The worker speaks
// first; what comes before its greeting (a login shell's talk) is skipped.
package wire
