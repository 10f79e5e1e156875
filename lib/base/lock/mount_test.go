package lock

import "testing"

const mounts = `22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
61 22 0:52 / /home rw,relatime shared:30 - nfs4 nas:/home rw,vers=4.2,rsize=1048576,hard,proto=tcp,timeo=600,sec=sys,clientaddr=10.0.0.7,local_lock=none,addr=10.0.0.2
62 22 0:53 / /old rw,relatime shared:31 - nfs nas:/old rw,vers=3,hard,nolock,proto=tcp,mountaddr=10.0.0.2,local_lock=all,addr=10.0.0.2
63 22 0:54 / /flock rw,relatime - nfs nas:/flock rw,vers=3,local_lock=flock
64 22 0:55 / /posix rw,relatime - nfs nas:/posix rw,vers=3,local_lock=posix
65 22 0:56 / /lustre rw,relatime shared:32 - lustre 10.0.0.9@o2ib:/fs rw,flock,user_xattr,lazystatfs
66 22 0:57 / /scratch rw,relatime shared:33 - lustre 10.0.0.9@o2ib:/fs2 rw,localflock,lazystatfs
67 22 0:58 / /mnt/bee rw,relatime shared:34 - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf
68 22 0:59 / /with\040blank rw,noatime - tmpfs tmpfs rw,size=65536k
damaged line
`

func TestLocalLocks(t *testing.T) {
	for device, want := range map[string]bool{
		"254:1": false, "0:52": false, "0:53": true, "0:54": true, "0:55": false, "0:56": false, "0:57": true, "0:58": true, "0:59": false, "9:9": false,
	} {
		if got := localLocks(mounts, device); got != want {
			t.Errorf("%s: %v", device, got)
		}
	}
	if Local(t.TempDir()) || Local("/nowhere") {
		t.Error("locks of a directory of this machine are said not to be seen elsewhere")
	}
}

func FuzzMounts(f *testing.F) {
	f.Add(mounts, "0:53")
	f.Add("36 35 98:0 / / rw - nfs", "98:0")
	f.Fuzz(func(_ *testing.T, text, device string) { localLocks(text, device) })
}
