package weights

import (
	"encoding/json"
	"math"
	"sort"

	"axlm/gocore/errs"
)

// Config reads one object of config.json. Each getter's error names the file
// and the key's whole path:
//
//	config.json: text_config.num_hidden_layers: want a positive integer, got "x"
//
// A null is read as an absent key, as mlx_lm's optional fields are. A nil
// *Config is an empty one.
type Config struct {
	file   string
	path   string // of this object within the file, "" or ending in a dot
	values map[string]any
}

// ParseConfig reads a JSON object; file is the name that errors show.
func ParseConfig(file string, data []byte) (*Config, error) {
	values, err := decodeObject(file, data)
	if err != nil {
		return nil, err
	}
	return &Config{file: file, values: values}, nil
}

// Values is the object itself: int, float64, string, bool, nil, []any and
// map[string]any. It is not to be changed.
func (c *Config) Values() map[string]any {
	if c == nil {
		return nil
	}
	return c.values
}

// MarshalJSON writes the object; non-finite floats take transformers' tagged
// form {"__float__": "Infinity"}.
func (c *Config) MarshalJSON() ([]byte, error) {
	if c == nil || c.values == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(tagged(c.values))
}

// Keys are the object's keys in order, nulls included.
func (c *Config) Keys() []string {
	keys := make([]string, 0, len(c.Values()))
	for key := range c.Values() {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// Has reports whether key is present and not null.
func (c *Config) Has(key string) bool {
	return c != nil && c.values[key] != nil
}

// IsNull reports whether key is present and null. In mlx_lm that is not the
// same as absent where a field's default is something: null switches it off.
func (c *Config) IsNull(key string) bool {
	value, present := c.Values()[key]
	return present && value == nil
}

// Missing is the error of a required key that is absent.
func (c *Config) Missing(key string) error {
	return errs.Value("%s is missing", c.where(key))
}

// Wrong is the error of a key with a bad value: `config.json: KEY: want WANT,
// got VALUE`.
func (c *Config) Wrong(key, want string) error {
	return errs.Value("%s: want %s, got %s", c.where(key), want, show(c.Values()[key]))
}

func (c *Config) where(key string) string {
	if c == nil {
		return "config.json: " + key
	}
	return c.file + ": " + c.path + key
}

// Int is a required integer. A float with an integral value is one.
func (c *Config) Int(key string) (int, error) { return need(c, key, wantInt, asInt) }

// IntDefault is an integer, or fallback where key is absent.
func (c *Config) IntDefault(key string, fallback int) (int, error) {
	return either(c, key, wantInt, asInt, fallback)
}

// Count is a required integer in 1 … 2³¹−1, what a dimension or a number of
// layers, heads or experts can be.
func (c *Config) Count(key string) (int, error) { return need(c, key, wantCount, asCount) }

// CountDefault is a Count, or fallback where key is absent.
func (c *Config) CountDefault(key string, fallback int) (int, error) {
	return either(c, key, wantCount, asCount, fallback)
}

// Float is a required number.
func (c *Config) Float(key string) (float64, error) { return need(c, key, wantFloat, asFloat) }

// FloatDefault is a number, or fallback where key is absent.
func (c *Config) FloatDefault(key string, fallback float64) (float64, error) {
	return either(c, key, wantFloat, asFloat, fallback)
}

// Bool is a required truth value.
func (c *Config) Bool(key string) (bool, error) { return need(c, key, wantBool, as[bool]) }

// BoolDefault is a truth value, or fallback where key is absent.
func (c *Config) BoolDefault(key string, fallback bool) (bool, error) {
	return either(c, key, wantBool, as[bool], fallback)
}

// String is a required string.
func (c *Config) String(key string) (string, error) { return need(c, key, wantString, as[string]) }

// StringDefault is a string, or fallback where key is absent.
func (c *Config) StringDefault(key, fallback string) (string, error) {
	return either(c, key, wantString, as[string], fallback)
}

// Strings is a list of strings, nil where key is absent.
func (c *Config) Strings(key string) ([]string, error) {
	return either(c, key, "a list of strings", list(as[string]), nil)
}

// Ints is a list of integers, nil where key is absent.
func (c *Config) Ints(key string) ([]int, error) {
	return either(c, key, "a list of integers", list(asInt), nil)
}

// Floats is a list of numbers, nil where key is absent.
func (c *Config) Floats(key string) ([]float64, error) {
	return either(c, key, "a list of numbers", list(asFloat), nil)
}

// Map is the object under key, an empty one where key is absent (Has tells).
func (c *Config) Map(key string) (*Config, error) {
	values, err := either(c, key, "an object", as[map[string]any], nil)
	if err != nil {
		return nil, err
	}
	sub := &Config{file: "config.json", path: key + ".", values: values}
	if c != nil {
		sub.file, sub.path = c.file, c.path+key+"."
	}
	return sub, nil
}

const (
	wantInt    = "an integer"
	wantCount  = "a positive integer"
	wantFloat  = "a number"
	wantBool   = "true or false"
	wantString = "a string"
)

func need[T any](c *Config, key, want string, convert func(any) (T, bool)) (T, error) {
	if !c.Has(key) {
		var zero T
		return zero, c.Missing(key)
	}
	value, ok := convert(c.values[key])
	if !ok {
		return value, c.Wrong(key, want)
	}
	return value, nil
}

func either[T any](c *Config, key, want string, convert func(any) (T, bool), fallback T) (T, error) {
	if !c.Has(key) {
		return fallback, nil
	}
	return need(c, key, want, convert)
}

func as[T any](value any) (T, bool) {
	v, ok := value.(T)
	return v, ok
}

func asInt(value any) (int, bool) {
	switch v := value.(type) {
	case int:
		return v, true
	case float64:
		// Beyond 2⁵³ a float no longer says which integer was meant.
		if v == math.Trunc(v) && math.Abs(v) <= 1<<53 {
			return int(v), true
		}
	}
	return 0, false
}

func asCount(value any) (int, bool) {
	v, ok := asInt(value)
	return v, ok && v > 0 && v <= math.MaxInt32
}

func asFloat(value any) (float64, bool) {
	switch v := value.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func list[T any](convert func(any) (T, bool)) func(any) ([]T, bool) {
	return func(value any) ([]T, bool) {
		items, ok := value.([]any)
		if !ok {
			return nil, false
		}
		out := make([]T, len(items))
		for i, item := range items {
			if out[i], ok = convert(item); !ok {
				return nil, false
			}
		}
		return out, true
	}
}
