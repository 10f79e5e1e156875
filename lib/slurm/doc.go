// Package slurm speaks to Slurm through its commands. It knows nothing of tasks.
//
// Each command has a file: a function that builds the arguments, and a pure
// parser that can be tested on what the command once printed. Formats are always
// asked for explicitly, and the variables by which a user changes what the
// commands print are taken away, so that the same is read for everyone, on Slurm
// 20.11 to 26.05.
//
// Output that does not have the expected shape is an error that names the
// command and the line, never a guess. Whatever goes wrong between us and Slurm
// is of kind fault.Unavailable.
package slurm
