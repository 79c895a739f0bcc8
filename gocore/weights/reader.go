package weights

// Reader reads a Config with an error that sticks, so that a family's
// parameters read as a list and are checked once, with Err. After the first
// error every getter returns a zero value.
type Reader struct {
	config *Config
	err    *error
}

// Reader starts reading c.
func (c *Config) Reader() Reader {
	return Reader{config: c, err: new(error)}
}

// Err is the first error.
func (r Reader) Err() error { return *r.err }

// Fail records err unless there is one already, or err is nil.
func (r Reader) Fail(err error) {
	if *r.err == nil {
		*r.err = err
	}
}

// Config is the object that is read.
func (r Reader) Config() *Config { return r.config }

// Has reports whether key is present and not null.
func (r Reader) Has(key string) bool { return r.config.Has(key) }

// Int is a required integer.
func (r Reader) Int(key string) int { return stick(r, key, r.config.Int) }

// IntOr is an integer, or fallback where key is absent.
func (r Reader) IntOr(key string, fallback int) int {
	return stickOr(r, key, fallback, r.config.IntDefault)
}

// Count is a required positive integer.
func (r Reader) Count(key string) int { return stick(r, key, r.config.Count) }

// CountOr is a positive integer, or fallback where key is absent.
func (r Reader) CountOr(key string, fallback int) int {
	return stickOr(r, key, fallback, r.config.CountDefault)
}

// Float is a required number.
func (r Reader) Float(key string) float64 { return stick(r, key, r.config.Float) }

// FloatOr is a number, or fallback where key is absent.
func (r Reader) FloatOr(key string, fallback float64) float64 {
	return stickOr(r, key, fallback, r.config.FloatDefault)
}

// Bool is a required truth value.
func (r Reader) Bool(key string) bool { return stick(r, key, r.config.Bool) }

// BoolOr is a truth value, or fallback where key is absent.
func (r Reader) BoolOr(key string, fallback bool) bool {
	return stickOr(r, key, fallback, r.config.BoolDefault)
}

// String is a required string.
func (r Reader) String(key string) string { return stick(r, key, r.config.String) }

// StringOr is a string, or fallback where key is absent.
func (r Reader) StringOr(key, fallback string) string {
	return stickOr(r, key, fallback, r.config.StringDefault)
}

// Strings is a list of strings, nil where key is absent.
func (r Reader) Strings(key string) []string { return stick(r, key, r.config.Strings) }

// Ints is a list of integers, nil where key is absent.
func (r Reader) Ints(key string) []int { return stick(r, key, r.config.Ints) }

// Floats is a list of numbers, nil where key is absent.
func (r Reader) Floats(key string) []float64 { return stick(r, key, r.config.Floats) }

// Map reads the object under key; its errors stick to r as well.
func (r Reader) Map(key string) Reader {
	return Reader{config: stick(r, key, r.config.Map), err: r.err}
}

func stick[T any](r Reader, key string, get func(string) (T, error)) T {
	var zero T
	if *r.err != nil {
		return zero
	}
	value, err := get(key)
	if err != nil {
		*r.err = err
		return zero
	}
	return value
}

func stickOr[T any](r Reader, key string, fallback T, get func(string, T) (T, error)) T {
	return stick(r, key, func(key string) (T, error) { return get(key, fallback) })
}
