;; A component that exports something, but not `handle`.
(component
  (core module $code
    (func (export "run")))
  (core instance $task (instantiate $code))
  (func $run (canon lift (core func $task "run")))
  (export "run" (func $run)))
