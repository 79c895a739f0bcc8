// Empty: its presence lets the package declare a function without a body (runtime_cgocall).
