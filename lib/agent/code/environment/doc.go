// Package environment prepares the code of tasks: a checkout of a commit, and a virtual environment
// into which it is installed.
//
// A prepared environment is kept by repository, commit and flags, and shared by all tasks that need
// it. It is built in a private directory, and a symbolic link, created by rename, marks it as
// complete: a killed build leaves nothing that could be mistaken for an environment, and of two
// concurrent builds on two hosts one wins and both are usable. Where locks work, a lock saves the
// second build. The installed code comes from outside. Git runs no hooks of a repository and uses
// only the allowed protocols; the installation runs the repository's own code, as the task does.
package environment
