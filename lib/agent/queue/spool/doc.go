// Package spool is a queue in a directory, for people without Arkindex.
//
//	new/ID.json           a pending task that no agent has taken
//	active/ID@AGENT.json  a task that an agent has taken
//	done/ID.json          a task that has ended
//	stop/ID               a stop of the task was requested
//	logs/ID.log           the published log
//	artifacts/ID/         the artifacts of the task
//	sources/SHA256.tar.gz directories that were submitted
//	tmp/                  files before they get their names
//	agents/NAME.json      when an agent took its last turn
//	batches/NAME/         tasks that were submitted together, before their move to new/
//	undelivered/NAME      marks a batch from which tasks may still have to be moved
//	retried/ID            the id of the task that retries task ID
//	over/GROUP.json       the group has a command that is due when its tasks have ended: see over.go
//	index                 a cache of the fields that ponos-list shows
//	absent/ID             which parent of a task is missing, and since when
//	spool.json            the identity of the spool
//
// A task is one JSON file that moves by rename, which is atomic on NFS too, so that several agents
// may share a spool: the one that renames it owns the task. Task files contain environments and have
// mode 0600, and the directories have mode 0700.
package spool
