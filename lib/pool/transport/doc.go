// Package transport opens the connections of a scheduler to its workers: ssh or srun as child
// processes whose standard streams carry the protocol, a pipe on this machine, or any other command.
//
// ssh and srun are run as programs: so the site's own configuration, keys, Kerberos, jump hosts and
// plugins apply as usual.
package transport
