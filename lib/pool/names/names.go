package names

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"os"
	"slices"
	"sort"
	"sync"
)

// recordSize is that of a hash and a value.
const recordSize = 16

type record [recordSize]byte

func (r record) hash() [recordSize - 1]byte { return [recordSize - 1]byte(r[:recordSize-1]) }

func compare(a, b record) int { return bytes.Compare(a[:recordSize-1], b[:recordSize-1]) }

func hash(name string) [recordSize - 1]byte {
	sum := sha256.Sum256([]byte(name))
	return [recordSize - 1]byte(sum[:recordSize-1])
}

// A Map has a value of a byte for each name. A name is put into it once.
type Map struct {
	// Dir is where files are made.
	Dir string
	// Recent is how many names are kept in memory; 0: 65536.
	Recent int

	recent  map[[recordSize - 1]byte]byte
	mu      sync.Mutex
	runs    []*run        // the longest first
	merging chan struct{} // closed when a merge has ended; nil: there is none
}

// run is a sorted part of the names, in a file. Get may still read it after it was merged, so the
// file is closed when the last reference is gone.
type run struct {
	file   *os.File
	length int      // in records
	fence  []uint64 // the first eight bytes of every block's first record
}

// block is how many records are read at once.
const block = 256

// Get returns the value of a name.
func (m *Map) Get(name string) (value byte, ok bool) {
	h := hash(name)
	if v, ok := m.recent[h]; ok {
		return v, true
	}
	m.mu.Lock()
	runs := m.runs
	m.mu.Unlock()
	for _, r := range slices.Backward(runs) {
		if v, ok := r.get(h); ok {
			return v, true
		}
	}
	return 0, false
}

// Put adds a name. If there is no room on the disk, it stays in memory.
func (m *Map) Put(name string, value byte) {
	if m.recent == nil {
		m.recent = map[[recordSize - 1]byte]byte{}
	}
	m.recent[hash(name)] = value
	if len(m.recent) >= cmp.Or(m.Recent, 1<<16) {
		m.spill()
	}
}

// spill moves what is in memory to a file.
func (m *Map) spill() {
	all := make([]record, 0, len(m.recent))
	for h, v := range m.recent {
		all = append(all, record(append(h[:], v)))
	}
	slices.SortFunc(all, compare)
	i := 0
	r, err := write(m.Dir, len(all), func() (record, error) { i++; return all[i-1], nil })
	if err != nil {
		m.Recent = 2 * len(all)
		return
	}
	m.recent = nil
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs = append(slices.Clip(m.runs), r)
	m.merge()
}

// merge merges the last two runs when the one before is not much longer, so that there are few runs.
// It runs in the background.
func (m *Map) merge() {
	n := len(m.runs)
	if m.merging != nil || n < 2 || m.runs[n-2].length > 2*m.runs[n-1].length {
		return
	}
	done := make(chan struct{})
	m.merging = done
	a, b := m.runs[n-2], m.runs[n-1]
	go func() {
		defer close(done)
		r, err := merged(m.Dir, a, b)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.merging = nil
		if err == nil { // others may have come behind these two
			i := slices.Index(m.runs, a)
			m.runs = append(append(slices.Clone(m.runs[:i]), r), m.runs[i+2:]...)
			m.merge()
		}
	}()
}

// write makes a run of records that come in order.
func write(dir string, n int, next func() (record, error)) (*run, error) {
	f, err := os.CreateTemp(dir, ".names-")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name())
	r := &run{file: f, length: n}
	w := bufio.NewWriterSize(f, 1<<16)
	for i := range n {
		rec, err := next()
		if err == nil {
			_, err = w.Write(rec[:])
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		if i%block == 0 {
			r.fence = append(r.fence, binary.BigEndian.Uint64(rec[:8]))
		}
	}
	if err := w.Flush(); err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

func merged(dir string, runs ...*run) (*run, error) {
	var in [2]*bufio.Reader
	var first [2]record
	var left [2]int
	n := 0
	for i, r := range runs {
		in[i] = bufio.NewReaderSize(io.NewSectionReader(r.file, 0, int64(r.length)*recordSize), 1<<16)
		left[i] = r.length
		n += r.length
		if _, err := io.ReadFull(in[i], first[i][:]); err != nil {
			return nil, err
		}
	}
	return write(dir, n, func() (record, error) {
		i := 0
		if left[0] == 0 || left[1] > 0 && compare(first[1], first[0]) < 0 {
			i = 1
		}
		rec := first[i]
		if left[i]--; left[i] == 0 {
			return rec, nil
		}
		_, err := io.ReadFull(in[i], first[i][:])
		return rec, err
	})
}

func (r *run) get(h [recordSize - 1]byte) (byte, bool) {
	first := binary.BigEndian.Uint64(h[:8])
	// Start at the block before the first one that begins after it; blocks with equal beginnings are
	// rare.
	at := sort.Search(len(r.fence), func(i int) bool { return r.fence[i] >= first })
	for at = max(0, at-1); at < len(r.fence) && r.fence[at] <= first; at++ {
		var b [block * recordSize]byte
		n, err := r.file.ReadAt(b[:min(block, r.length-at*block)*recordSize], int64(at)*block*recordSize)
		if err != nil && n == 0 {
			return 0, false
		}
		records := n / recordSize
		i := sort.Search(records, func(i int) bool { return bytes.Compare(b[i*recordSize:][:recordSize-1], h[:]) >= 0 })
		if i < records && record(b[i*recordSize:][:recordSize]).hash() == h {
			return b[(i+1)*recordSize-1], true
		}
	}
	return 0, false
}
