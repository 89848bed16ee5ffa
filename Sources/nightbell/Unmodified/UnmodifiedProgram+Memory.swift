import LinuxSystem
import Nightbell
import Presentation

/// The memory of sleeping programs.
extension UnmodifiedProgram {
    func prepareMemory(_ name: String) {
        guard let process = try? ProcessHandle(opening: pid), let memory = try? ProgramMemory(process, name),
            (try? pollSet.add(memory.descriptor)) != nil
        else { return }
        if !memory.limit.isEmpty { complain(memory.limit) }
        client.reportPagedOut(memory.state)
        self.memory = memory
    }

    func writeToSwap() {
        state = .asleep(pageOutAt: nil)
        memory?.write((try? group.processes()) ?? [])
    }
}
