package jsonobj

import (
	"bytes"
	"encoding/json"
)

// Marshal is like json.Marshal, but leaves <, > and & as they are: people read stored and shown
// documents. A page escapes its content itself.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
