// Package transport opens the connections of a scheduler to its workers: ssh or srun
// as child processes whose standard streams carry the protocol, a pipe on this
// machine, or any other command.
//
// ssh and srun are run, not spoken: so the site's own configuration, keys,
// Kerberos, jump hosts and plugins are what they always are.
package transport
