#!lua
--- probe: whether a step would be run here. Changes nothing; without flags, so that a server that is full or must not be written
--- to refuses it as it refuses steps.
--- @key root
--- @returns         {code}; OK | LOST
return { generation and 'OK' or 'LOST' }
