package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"axlm/gocore/errs"
)

// maxJSONBytes bounds every JSON file that is read whole. Real ones stay under
// a few megabytes; the bound keeps a mistaken path from filling the memory.
const maxJSONBytes = 100 << 20

// floatTag is the key under which transformers writes a float that JSON has no
// literal for: {"__float__": "Infinity"}.
const floatTag = "__float__"

var taggedFloats = map[string]float64{
	"Infinity":  math.Inf(1),
	"-Infinity": math.Inf(-1),
	"NaN":       math.NaN(),
}

// readFile reads dir/name whole. A missing file is NotFound; both errors name
// the path.
func readFile(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errs.NotFound("%s does not exist", path)
	}
	if err != nil {
		return nil, errs.OS("%w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, errs.OS("%s is not a regular file", path)
	}
	if info.Size() > maxJSONBytes {
		return nil, errs.Value("%s is %d bytes long; more than %d is no configuration", path, info.Size(), maxJSONBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errs.OS("%w", err)
	}
	return data, nil
}

// decodeObject reads one JSON object as Python's json module does: NaN and
// Infinity are values, integers stay integers. The numbers become int or
// float64. Errors name file, line and column.
func decodeObject(file string, data []byte) (map[string]any, error) {
	if err := validJSON(file, data); err != nil {
		patched := tagNonFinite(data)
		if patched == nil || !json.Valid(patched) {
			return nil, err
		}
		data = patched
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, errs.Value("%s: %w", file, err)
	}
	object, ok := plain(value).(map[string]any)
	if !ok {
		return nil, errs.Value("%s: want a JSON object, got %s", file, show(plain(value)))
	}
	return object, nil
}

// validJSON checks the syntax and places an error at its line and column.
func validJSON(file string, data []byte) error {
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return errs.Value("%s: not valid JSON: %w", file, err)
	}
	at := min(max(int(syntax.Offset)-1, 0), len(data))
	if int(syntax.Offset) >= len(data) && syntax.Error() == "unexpected end of JSON input" {
		at = len(data)
	}
	line := 1 + bytes.Count(data[:at], []byte("\n"))
	column := at - bytes.LastIndexByte(data[:at], '\n')
	return errs.Value("%s: not valid JSON at line %d, column %d: %w", file, line, column, syntax)
}

// tagNonFinite rewrites the bare words NaN, Infinity and -Infinity outside
// strings, which Python's json writes and reads, in transformers' tagged form.
// It returns nil when there are none.
func tagNonFinite(data []byte) []byte {
	var out bytes.Buffer
	inString, changed := false, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case inString && c == '\\' && i+1 < len(data):
			out.WriteByte(c)
			i++
			c = data[i]
		case c == '"':
			inString = !inString
		case !inString && (c == 'N' || c == 'I' || c == '-'):
			if word := nonFiniteWord(data[i:]); word != "" {
				fmt.Fprintf(&out, `{%q:%q}`, floatTag, word)
				i += len(word) - 1
				changed = true
				continue
			}
		}
		out.WriteByte(c)
	}
	if !changed {
		return nil
	}
	return out.Bytes()
}

func nonFiniteWord(data []byte) string {
	for word := range taggedFloats {
		if bytes.HasPrefix(data, []byte(word)) {
			return word
		}
	}
	return ""
}

// plain replaces json.Number by int or float64, and tagged floats by floats.
func plain(value any) any {
	switch v := value.(type) {
	case json.Number:
		if i, err := strconv.Atoi(v.String()); err == nil {
			return i
		}
		f, _ := strconv.ParseFloat(v.String(), 64) // out of range is ±Inf, as in Python
		return f
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		if len(v) == 1 {
			if word, ok := v[floatTag].(string); ok {
				if f, ok := taggedFloats[word]; ok {
					return f
				}
			}
		}
		for key := range v {
			v[key] = plain(v[key])
		}
	}
	return value
}

// tagged is a copy of value with non-finite floats in their tagged form, so
// that it can be written as JSON.
func tagged(value any) any {
	switch v := value.(type) {
	case float64:
		switch {
		case math.IsNaN(v):
			return map[string]any{floatTag: "NaN"}
		case math.IsInf(v, 1):
			return map[string]any{floatTag: "Infinity"}
		case math.IsInf(v, -1):
			return map[string]any{floatTag: "-Infinity"}
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = tagged(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = tagged(v[key])
		}
		return out
	}
	return value
}

// show is a value as an error message quotes it: JSON, cut to one short line.
func show(value any) string {
	const limit = 60
	text, err := json.Marshal(tagged(value))
	if err != nil {
		return fmt.Sprintf("%v", value)
	}
	if runes := []rune(string(text)); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return string(text)
}
