package mlxc

// Elementwise operations of one array.

// unary runs an operation on one array. Its caller has begun it.
func (s *Scope) unary(f *function, a Array) Array {
	s.frame.a[1], s.frame.a[2] = a.ctx, s.stream.ctx
	return s.finish(f, a)
}

// Negative returns -a.
func (s *Scope) Negative(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_negative, a)
}

// Abs returns |a|.
func (s *Scope) Abs(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_abs, a)
}

// Exp returns e to the a.
func (s *Scope) Exp(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_exp, a)
}

// Log returns the natural logarithm of a.
func (s *Scope) Log(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_log, a)
}

// Log1p returns log(1+a).
func (s *Scope) Log1p(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_log1p, a)
}

// Sqrt returns the square root of a.
func (s *Scope) Sqrt(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_sqrt, a)
}

// Square returns a².
func (s *Scope) Square(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_square, a)
}

// Tanh returns the hyperbolic tangent of a.
func (s *Scope) Tanh(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_tanh, a)
}

// Sigmoid returns 1/(1+exp(-a)).
func (s *Scope) Sigmoid(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_sigmoid, a)
}

// Floor returns a rounded down.
func (s *Scope) Floor(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_floor, a)
}

// Ceil returns a rounded up.
func (s *Scope) Ceil(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_ceil, a)
}

// Sin returns the sine of a.
func (s *Scope) Sin(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_sin, a)
}

// IsNaN returns whether elements are not a number.
func (s *Scope) IsNaN(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_isnan, a)
}

// IsInf returns whether elements are infinite.
func (s *Scope) IsInf(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_isinf, a)
}

// Copy returns a node of its own with a's values.
func (s *Scope) Copy(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.unary(&s.lib.c.mlx_copy, a)
}

// typed runs an operation with an element type.
func (s *Scope) typed(f *function, a Array, dt DType) Array {
	element := s.element(f.name, dt)
	if !s.begin() {
		return Array{}
	}
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = a.ctx, element, s.stream.ctx
	return s.finish(f, a)
}

// AsType converts the elements to another type.
func (s *Scope) AsType(a Array, dt DType) Array {
	if s.err != nil {
		return Array{}
	}
	return s.typed(&s.lib.c.mlx_astype, a, dt)
}

// View reads the same bytes as elements of another type; the last axis grows or shrinks with their size.
func (s *Scope) View(a Array, dt DType) Array {
	if s.err != nil {
		return Array{}
	}
	return s.typed(&s.lib.c.mlx_view, a, dt)
}
