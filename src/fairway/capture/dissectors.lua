-- Reads the tables of `protocols`, which `dissectors.py` writes in front of this.
local function uint255(range)
  local value = 0
  for place = 3, 0, -1 do
    local digit = range(place, 1):uint()
    if digit == 255 then return nil end
    value = value * 255 + digit
  end
  return value
end

local function digits(range)
  local text = range:string()
  if text:find("^[0-9a-f]+$") and #text == range:len() then return text end
  return nil
end

local function value_of(field, range)
  if field.type == "uint255" then return uint255(range) end
  if field.type == "digits" then return digits(range) end
  return range:uint()
end

local function matches(form, buffer)
  for offset, known in pairs(form.where) do
    if offset >= buffer:len() or not known[buffer(offset, 1):uint()] then return false end
  end
  return true
end

-- Gives the values of a form's fields, or nil and what is wrong.
local function read(form, buffer)
  local size = buffer:len()
  if size < form.header_bytes then return nil, "shorter than " .. form.header_bytes .. " bytes" end
  if size > form.header_bytes and not form.body then return nil, "longer than " .. form.header_bytes .. " bytes" end
  local values = {}
  for _, field in ipairs(form.fields) do
    local value = value_of(field, buffer(field.offset, field.size))
    if value == nil then return nil, field.name .. " cannot be read" end
    if field.not_zero and value == 0 then return nil, field.name .. " is 0" end
    if field.values and not field.values[value] then return nil, field.name .. " is " .. value end
    values[field.name] = value
  end
  return values
end

local function ends(pinfo)
  local from = tostring(pinfo.src) .. ":" .. pinfo.src_port
  local to = tostring(pinfo.dst) .. ":" .. pinfo.dst_port
  return from, to
end

local function install(protocol)
  local proto = Proto(protocol.name, protocol.title)
  local shown, bits = {}, {}
  shown.kind = ProtoField.string(protocol.name .. ".kind", "Kind")
  shown.layout = ProtoField.string(protocol.name .. ".layout", "Layout")
  shown.body_bytes = ProtoField.uint32(protocol.name .. ".body_bytes", "Size of the body", base.DEC)
  shown.body = ProtoField.bytes(protocol.name .. ".body", "Body")
  for _, form in ipairs(protocol.forms) do
    for _, field in ipairs(form.fields) do
      local name = protocol.name .. "." .. field.name
      if shown[field.name] == nil then
        if field.type == "digits" then
          shown[field.name] = ProtoField.string(name, field.title)
        else
          shown[field.name] = ProtoField.uint32(name, field.title, field.hexadecimal and base.HEX or base.DEC, field.values)
        end
        for mask, bit in pairs(field.bits or {}) do
          bits[field.name] = bits[field.name] or {}
          bits[field.name][mask] = ProtoField.bool(name .. "." .. bit:lower(), bit, 8, {"set", "not set"}, mask)
        end
      end
    end
  end
  local all = {}
  for _, field in pairs(shown) do all[#all + 1] = field end
  for _, of_field in pairs(bits) do
    for _, field in pairs(of_field) do all[#all + 1] = field end
  end
  proto.fields = all
  local malformed = ProtoExpert.new(
    protocol.name .. ".malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
  proto.experts = {malformed}
  proto.prefs.ports = Pref.range(
    "UDP ports", protocol.ports, "Ports on which " .. protocol.title .. " is expected", 65535)

  -- What connects and their replies have agreed on, by both ends and both ids.
  local versions, layouts = {}, {}
  function proto.init() versions, layouts = {}, {} end

  local function learn(form, values, pinfo)
    if protocol.name ~= "mrp" then return end
    local from, to = ends(pinfo)
    if form.kind == "connect" then
      versions[from .. to .. values.cl_conid] = values.ver
    elseif form.kind == "con_reply" and values.stat == 1 then
      local layout = versions[to .. from .. values.cl_conid] == 1 and "piggyback" or "stamped"
      layouts[from .. to .. values.cl_conid .. "/" .. values.sv_conid] = layout
      layouts[to .. from .. values.sv_conid .. "/" .. values.cl_conid] = layout
    end
  end

  -- Gives form and values of a datagram, or nil and what is wrong.
  local function understand(buffer, pinfo)
    local wrong, first, first_values = "no packet of this protocol", nil, nil
    local from, to = ends(pinfo)
    for _, form in ipairs(protocol.forms) do
      if matches(form, buffer) then
        local values, reason = read(form, buffer)
        if form.layout == nil then
          if values == nil then return nil, reason end
          return form, values
        end
        if values == nil then
          wrong = reason
        elseif layouts[from .. to .. values.dest_conid .. "/" .. values.from_conid] == form.layout then
          return form, values
        elseif first == nil then
          first, first_values = form, values
        end
      end
    end
    if first ~= nil then return first, first_values end
    return nil, wrong
  end

  local function summary(form, values, size)
    local words = {(form.kind:gsub("_", " "))}
    for _, name in ipairs(protocol.summary) do
      if values[name] ~= nil then words[#words + 1] = name .. "=" .. values[name] end
    end
    if size > 0 then words[#words + 1] = "body=" .. size end
    return table.concat(words, " ")
  end

  local function show(tree, form, values, buffer)
    tree:add(shown.kind, form.kind):set_generated()
    if form.layout ~= nil then tree:add(shown.layout, form.layout):set_generated() end
    for _, field in ipairs(form.fields) do
      local range = buffer(field.offset, field.size)
      local item = tree:add(shown[field.name], range, values[field.name])
      for _, bit in pairs(bits[field.name] or {}) do item:add(bit, range) end
    end
    local size = buffer:len() - form.header_bytes
    if form.body then tree:add(shown.body_bytes, size):set_generated() end
    if size > 0 then tree:add(shown.body, buffer(form.header_bytes)) end
    return size
  end

  function proto.dissector(buffer, pinfo, tree)
    pinfo.cols.protocol = protocol.name:upper()
    local branch = tree:add(proto, buffer())
    local form, values = understand(buffer, pinfo)
    if form == nil then
      pinfo.cols.info = "malformed: " .. values
      branch:add(shown.kind, "malformed"):set_generated()
      branch:add_proto_expert_info(malformed, values)
      return buffer:len()
    end
    learn(form, values, pinfo)
    local size = show(branch, form, values, buffer)
    pinfo.cols.info = summary(form, values, size)
    branch:append_text(": " .. summary(form, values, size))
    return buffer:len()
  end

  local ports = DissectorTable.get("udp.port")
  local served = proto.prefs.ports
  if served ~= "" then ports:add(served, proto) end
  ports:add_for_decode_as(proto)
  function proto.prefs_changed()
    if served ~= "" then ports:remove(served, proto) end
    served = proto.prefs.ports
    if served ~= "" then ports:add(served, proto) end
  end
  if protocol.telling then
    proto:register_heuristic("udp", function(buffer, pinfo, tree)
      if buffer:len() == 0 or buffer:len() ~= buffer:reported_len() then return false end
      if understand(buffer, pinfo) == nil then return false end
      proto.dissector(buffer, pinfo, tree)
      return true
    end)
  end
end

for _, protocol in ipairs(protocols) do install(protocol) end
