package jsonobj

import (
	"bytes"
	"encoding/json"
)

// Marshal is json.Marshal but for <, > and &, which stay as they are: what is stored and shown is
// read by people. A page escapes what it shows itself.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
