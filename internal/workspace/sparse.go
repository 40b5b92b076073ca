package workspace

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyContent copies a file to an empty one. Holes stay holes, since an agent may have left a
// sparse file of any size.
func copyContent(out, in *os.File, size int64) error {
	for at := int64(0); at < size; {
		data, err := in.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // only a hole is left
			break
		}
		end := size
		if err == nil {
			end, err = in.Seek(data, unix.SEEK_HOLE)
		}
		if err != nil { // the file system does not support holes
			data, end = at, size
		}
		if _, err := in.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(data, io.SeekStart); err != nil {
			return err
		}
		// io.CopyN shares the blocks on file systems that support it (copy_file_range).
		if _, err := io.CopyN(out, in, end-data); err != nil {
			return err
		}
		at = end
	}
	return out.Truncate(size)
}
