// Package arkindex is the queue of an Arkindex instance, seen by a Ponos agent.
//
// Where an operation is found is read from the OpenAPI document of the instance,
// by operation id, as the official client does; a table of well-known paths
// serves until the document can be had. Answers are decoded tolerantly: servers
// of different ages name things differently, and nearly everything is optional.
//
// All processes of one agent share the identity file: the agent's id and tokens.
// A process whose token is refused first looks whether another one has renewed
// it, then refreshes it, and registers again if that fails too.
//
// Logs, artifacts and files go to and from presigned URLs, streamed, without our
// credentials. Such URLs expire, so they are never kept on disk, and a refused
// one is asked for again, once. They and all tokens are kept out of messages.
package arkindex
