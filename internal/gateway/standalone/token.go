package standalone

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/store"
)

const (
	// minToken is the least length of a token that somebody has chosen.
	minToken = 16
	// maxTokenFile is the greatest size of a file with a token.
	maxTokenFile = 1 << 20
)

// tokenOf returns the token that clients of the gateway bear. It is that of a file, or the one in
// the store, which is made if it is not there.
func tokenOf(file, storeDir string) (string, error) {
	name := "--token-file: " + file
	if file == "" {
		file = filepath.Join(storeDir, "gateway.token")
		name = file
		if err := makeToken(file); err != nil {
			return "", err
		}
	}
	data, err := input.ReadFile(file, maxTokenFile)
	if err != nil {
		return "", input.Errorf("%w", input.Unreadable(name, err))
	}
	token := strings.TrimSpace(string(data))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n/") {
		return "", input.Errorf("%s: expected a token of at least %d characters without spaces and slashes", name, minToken)
	}
	return token, nil
}

// makeToken makes a file with a token, unless it is there.
func makeToken(file string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(file), ".gateway.token-*") // only its owner can read it
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // nobody reads the file
	_, err = f.WriteString("evalrun-mcp-" + rand.Text() + rand.Text() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// lock makes sure that one gateway at a time looks after the tasks of a token in a store. The lock
// ends with the process. The processes of the gateway's servers bear the mark. It is the same for
// the next gateway that gets the lock, so that it finds the processes of one that was killed.
func lock(st store.Place, token string) (mark string, unlock func(), err error) {
	sum := sha256.Sum256([]byte(token))
	name := "gateway-" + hex.EncodeToString(sum[:4])
	mark = st.ID() + "/" + name
	f, err := os.OpenFile(filepath.Join(st.Dir(), name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close() // nothing was written
		return "", nil, input.Errorf("another gateway uses the store %s with the same token; end it, or give another --store or --token-file",
			st.Dir())
	} else if err != nil { // a file system without locks: there may be other gateways, whose processes are not ours
		mark += "-" + strconv.Itoa(os.Getpid())
	}
	return mark, func() { _ = f.Close() }, nil
}
