package task

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// ReadLines reads records, one per line, and hands each line to do with what is
// wrong with it, if something is. A line longer than MaxLine is skipped and
// reported. It ends at the end of input, or with the first error of do.
func ReadLines(r io.Reader, do func(Line, error) error) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		raw, tooLong, err := readLine(lines)
		atEnd := errors.Is(err, io.EOF)
		if err != nil && !atEnd {
			return fmt.Errorf("standard input: %w", err)
		}
		if atEnd && len(raw) == 0 && !tooLong {
			return nil
		}
		line, problem := Line{Raw: raw}, error(nil)
		if tooLong {
			problem = fmt.Errorf("line is longer than %d bytes", MaxLine)
		} else {
			line, problem = ParseLine(raw)
		}
		if problem != nil {
			problem = fmt.Errorf("standard input: line %d: %w", number, problem)
		}
		if err := do(line, problem); err != nil || atEnd {
			return err
		}
	}
}

// readLine reads up to a newline, which is not part of the line. Of a line that is
// too long nothing is kept.
func readLine(r *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > MaxLine; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if n := len(line); n > 0 && line[n-1] == '\n' {
			line = line[:n-1]
		}
		return line, tooLong, err
	}
}
