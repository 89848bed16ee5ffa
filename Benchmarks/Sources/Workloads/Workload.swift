/// Work that is repeated.
package protocol Workload: AnyObject {
    func cycle()
}

extension Sleepers: Workload {}
extension Timers: Workload {}
