// Package environment prepares the code of tasks: a checkout of a commit, and a
// virtual environment into which it is installed.
//
// A prepared environment is kept by repository, commit and flags, and shared by all
// tasks that need it. It is built in a directory that no other process knows, and a
// symbolic link made by rename says that it is complete: a build that is killed
// leaves nothing that could be mistaken for an environment, and of two builds at
// the same time on two hosts one wins and both work. A lock saves the second build
// where locks work.
//
// What is installed comes from outside. Git runs none of a repository's hooks and
// speaks only the protocols that are allowed; installing runs the repository's own
// code, as running the task does.
package environment
