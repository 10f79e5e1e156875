// Package server is an Arkindex server for tests: a real HTTP server that
// speaks to agents and to real workers.
//
// It refuses what a real server refuses: wrong or expired tokens, unknown ids,
// wrong methods, state changes that do not exist, expired or altered presigned
// URLs, requests to the object store that carry a second credential or no
// length. It makes faults on demand, and records every request.
package server
