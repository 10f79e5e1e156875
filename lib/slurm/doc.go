// Package slurm runs Slurm's commands and parses their output. It knows nothing of tasks.
//
// Each command has a file with a function that builds the arguments and a pure parser, which
// tests run on recorded output. Output formats are always requested explicitly, and variables
// that change the output are removed from the environment. The output is therefore the same for
// all users, on Slurm 20.11 to 26.05.
//
// Names, comments and directories of jobs are text of any user. Tables are therefore asked for with a
// delimiter that is new in each query, and a record of scontrol, which takes none, is not believed if a
// key that counts comes twice. Unexpected output is an error that names the command and the line;
// parsers never guess. Where a caller can do without a record (Client.Odd), a broken one costs itself.
// All failures to get an answer from Slurm are of kind fault.Unavailable.
//
// # Face
//
// [Client] submits, lists and cancels; the parsers and their records are for callers that have the output
// already. Reasons of Slurm in words of people are those of [ExplainReason].
//
// # Packages
//
//	sbatch     what the options of sbatch are, how they are read and printed, and what they request; pure
//
// # Files
//
// None. Recorded output of real clusters is in testdata/VERSION.
//
// # Promises, and the tests that hold them
//
//	The versions of Slurm from 20.11 to 26.05 are read alike
//	    lib/slurm/versions_test.go:TestVersions
//	    lib/slurm/hostile_test.go:TestMeaning
//	    lib/slurm/meaning_test.go:TestStatesMean
//	A failed or odd listing is an error, never an empty list
//	    lib/slurm/jobs_test.go:TestOddOutputIsAnError
//	    lib/slurm/views_test.go:TestCutOff
//	Texts that other users have written forge nothing, and end no view
//	    lib/slurm/views_test.go:TestForgedRow
//	    lib/slurm/hostile_test.go:TestTextsForgeNoJob
//	    lib/slurm/hostile_test.go:TestOddRowCostsItself
//	What is said of options is what sbatch does with them
//	    testscripts/sbatch/sbatch_test.go:TestSlurmTakesOptions
//	    testscripts/sbatch/sbatch_test.go:TestSlurmAllocates
//	Variables of the user do not change what is read
//	    lib/slurm/client_test.go:TestOutputKeepsTheUsersFormatsAway
//	A job that has ended cannot be cancelled in vain
//	    lib/slurm/jobs_test.go:TestCancelOfAnEndedJobIsSuccess
package slurm
