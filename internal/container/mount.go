package container

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// mountPrefix begins the source of every mount that is made here; the owner follows.
const mountPrefix = "evalrun/"

func mountSource() string { return mountPrefix + owner(os.Getpid()) }

// mountOf is the source of the mount at a path, empty if there is none.
func mountOf(path string) (source string) {
	eachMount(func(at, from string) {
		if at == path {
			source = from
		}
	})
	return source
}

// eachMount calls f for the mounts of this machine, in the order in which they were made.
func eachMount(f func(path, source string)) {
	in, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return // not Linux
	}
	defer func() { _ = in.Close() }() // only read
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields, behind := strings.Fields(before), strings.Fields(after)
		if len(fields) > 4 && len(behind) > 1 {
			f(unescape(fields[4]), unescape(behind[1]))
		}
	}
}

// unescape replaces octal numbers, as the kernel writes them, by the characters that they stand
// for.
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// sweepMounts unmounts the roots whose evalrun is gone.
func sweepMounts() (err error) {
	var left []string
	eachMount(func(path, source string) {
		if made, ok := strings.CutPrefix(source, mountPrefix); ok && isGone(made) {
			left = append(left, path)
		}
	})
	for _, path := range left {
		if failed := unmount(path); failed != nil && mountOf(path) != "" {
			err = failed
		}
	}
	return err
}
