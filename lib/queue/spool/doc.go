// Package spool is a queue in a directory, for people without Arkindex.
//
//	new/ID.json           waits to be taken
//	active/ID@AGENT.json  taken by an agent
//	done/ID.json          over
//	stop/ID               a stop of the task was requested
//	logs/ID.log           the published log
//	artifacts/ID/         what the task has made
//	sources/SHA256.tar.gz directories that were submitted
//	tmp/                  files before they get their names
//	agents/NAME.json      when an agent took its last turn
//	batches/NAME/         tasks that were submitted together, on their way to new/; with a
//	                      key, which tasks it stands for
//	undelivered/NAME      such a batch that may have tasks on their way
//	retried/ID            the task that does again what task ID did
//	index                 a cache of what the listing needs of tasks
//	absent/ID             which parent of a task is not there, and since when
//	spool.json            the identity of the spool
//
// A task is one JSON file that moves by rename, which is atomic on NFS too, so
// that several agents may share a spool: who renames it has it. Task files hold
// environments and so are of mode 0600, as the directories are 0700.
package spool
