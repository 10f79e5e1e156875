// Package slurm runs Slurm's commands and parses their output. It knows nothing of tasks.
//
// Each command has a file with a function that builds the arguments and a pure parser, which
// tests run on recorded output. Output formats are always requested explicitly, and variables
// that change the output are removed from the environment. The output is therefore the same for
// all users, on Slurm 20.11 to 26.05.
//
// Unexpected output is an error that names the command and the line; parsers never guess. All
// failures to get an answer from Slurm are of kind fault.Unavailable.
package slurm
