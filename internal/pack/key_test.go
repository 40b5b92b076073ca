package pack

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"filippo.io/age"
)

// Given an encrypted file, when any of its bytes is changed or it is cut anywhere, then it is refused, or what
// comes out is the same.
func TestDamagedEncryptedPacks(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	to, from := Key{Recipients: []string{identity.Recipient().String()}}, Key{Identities: []byte(identity.String())}
	_, plain, _ := packed(t)
	var file bytes.Buffer
	w, err := to.Encrypt(&file)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(file.Bytes(), plain[:50]) {
		t.Fatal("it is not encrypted")
	}
	read := func(data []byte) error {
		r, err := from.Open(bytes.NewReader(data))
		if err == nil {
			_, err = Extract(r, t.TempDir())
		}
		return err
	}
	if err := read(file.Bytes()); err != nil {
		t.Fatal(err)
	}
	bad := (*InvalidError)(nil)
	for at := 0; at < file.Len(); at += 1 + file.Len()/60 {
		changed := bytes.Clone(file.Bytes())
		changed[at] ^= 0x10
		if err := read(changed); !errors.As(err, &bad) && !errors.Is(err, ErrKey) {
			t.Errorf("changed at %d of %d: %v", at, file.Len(), err)
		}
		if err := read(file.Bytes()[:at]); !errors.As(err, &bad) {
			t.Errorf("cut at %d of %d: %v", at, file.Len(), err)
		}
	}
	if err := read(append(file.Bytes(), 0)); !errors.As(err, &bad) {
		t.Errorf("longer: %v", err)
	}
	if r, err := (Key{}).Open(bytes.NewReader(plain)); err != nil {
		t.Error(err)
	} else if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("a file that is not encrypted: %v", err)
	}
}
