package pack

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// Key is what a pack is encrypted with, or what it is read with. The format is that of age
// (https://age-encryption.org/v1), so that its programs read such a file, too.
type Key struct {
	// Passphrase is a text that people share; empty if there is none.
	Passphrase string
	// Recipients are public keys of age (age1…), for those who write. Each of them can read the pack.
	Recipients []string
	// Identities is a file of secret keys, as age-keygen writes it, for those who read.
	Identities []byte
}

// ErrKey says that a key is none, or not the one that a pack was encrypted with.
var ErrKey = errors.New("the key does not fit")

// workFactor makes guessing a passphrase expensive: each guess takes about a second and 256 MB. A file that asks for
// more is refused.
const workFactor = 18

// ageHeader is how an encrypted file begins.
const ageHeader = "age-encryption.org/v1\n"

// Encrypt returns what encrypts everything that is written to it. Close ends the file.
func (k Key) Encrypt(w io.Writer) (io.WriteCloser, error) {
	var to []age.Recipient
	for _, text := range k.Recipients {
		r, err := age.ParseX25519Recipient(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%w: %q is no public key of age, which begins with age1", ErrKey, text)
		}
		to = append(to, r)
	}
	if k.Passphrase != "" {
		r, err := age.NewScryptRecipient(k.Passphrase)
		if err != nil {
			return nil, err
		}
		r.SetWorkFactor(workFactor)
		to = append(to, r)
	}
	return age.Encrypt(w, to...)
}

// Open returns the pack in a file, which is decrypted if it is encrypted.
func (k Key) Open(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	if begin, _ := buffered.Peek(len(ageHeader)); string(begin) != ageHeader {
		return buffered, nil // whatever it is
	}
	var with []age.Identity
	if len(k.Identities) > 0 {
		all, err := age.ParseIdentities(bytes.NewReader(k.Identities))
		if err != nil {
			return nil, fmt.Errorf("%w: the file of the identity has no secret key of age", ErrKey) // err may show it
		}
		with = all
	}
	if k.Passphrase != "" {
		i, err := age.NewScryptIdentity(k.Passphrase)
		if err != nil {
			return nil, err
		}
		i.SetMaxWorkFactor(workFactor)
		with = append(with, i)
	}
	if len(with) == 0 {
		return nil, fmt.Errorf("%w: it is encrypted; give --identity or --passphrase-file", ErrKey)
	}
	out, err := age.Decrypt(buffered, with...)
	if errors.As(err, new(*age.NoIdentityMatchError)) {
		return nil, fmt.Errorf("%w: it is encrypted for another key, or with another passphrase", ErrKey)
	}
	if err != nil {
		return nil, damaged(err)
	}
	return out, nil
}
