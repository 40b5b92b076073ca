package jsonobj

import "bytes"

// Join marshals values to one object with the members of each, in this order. A nil value has none.
func Join(objects ...any) ([]byte, error) {
	var parts [][]byte
	for _, o := range objects {
		if o == nil {
			continue
		}
		text, err := Marshal(o)
		if err != nil {
			return nil, err
		}
		if members := bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("{")), []byte("}")); len(members) > 0 {
			parts = append(parts, members)
		}
	}
	return append(append([]byte("{"), bytes.Join(parts, []byte(","))...), '}'), nil
}
