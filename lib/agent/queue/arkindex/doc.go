// Package arkindex is the queue of an Arkindex instance, seen by a Ponos agent.
//
// The paths of operations are read from the OpenAPI document of the instance, by operation id, as the
// official client does; until the document is available, a table of well-known paths is used. Answers
// are decoded tolerantly: servers of different versions use different names, and nearly everything is
// optional.
//
// All processes of one agent share the identity file: the agent's id and tokens. A process whose
// token is refused first checks whether another one has renewed it, then refreshes it, and registers
// again if that fails too.
//
// Logs, artifacts and files go to and from presigned URLs, streamed, without the agent's credentials.
// Such URLs expire, so they are never stored on disk, and a refused one is requested again, once.
// Neither they nor tokens appear in messages.
package arkindex
